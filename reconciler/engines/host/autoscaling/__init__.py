"""How many replicas there shall be, and of what size: metrics, decisions, recommendations."""
