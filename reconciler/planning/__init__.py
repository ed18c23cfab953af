"""Planning: from desired and recorded state to a plan, as a pure function."""
