"""Values as text, Markdown, JSON, SARIF and the formats of forges."""
