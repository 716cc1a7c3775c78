"""The batch analysis: many runs become one graph, tables and a report page."""
