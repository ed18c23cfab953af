"""Probes: asked of containers at their pace, and what their answers mean."""
