"""The import table: one file a subject, each with rows from ATen ops to operations of ours."""
