"""The recorded engine, which only records resources and runs nothing."""
