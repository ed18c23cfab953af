"""Tests of the pages of docs/, and that what they show happens."""
