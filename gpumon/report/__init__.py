"""The efficiency report of one job or many: one object, several renderers."""
