"""The pipeline from a commit to recorded state; the only package that imports every stage."""
