"""The nouns: values that know no file and no clock."""
