"""The project itself: its layout, its style, what it ships and how it is installed."""
