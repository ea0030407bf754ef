"""What the columns of a table hold, in lines."""

from undirected.core.columns import Column, Schema

MOST_LISTED = 40
"""Columns that are listed one by one."""


def schema_lines(schema: Schema, rows: int) -> list[str]:
    """The columns one by one, or their kinds where they are many, and those left out."""
    lines = []
    if schema.is_zero_one:
        return _left_out(schema)
    width = max(len(name) for name in schema.names[:MOST_LISTED])
    for column in schema.columns[:MOST_LISTED]:
        share = f"{column.missing / rows:.0%}" if rows else f"{column.missing:,}"
        holes = f", {share} missing" if column.missing else ""
        mark = "  (label)" if column.name == schema.label else ""
        lines.append(f"  {column.name:{width}}  {describe_column(column)}{holes}{mark}")
    if len(schema) > MOST_LISTED:
        counts = {k: sum(c.kind == k for c in schema) for k in sorted(schema.kinds)}
        told = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        lines.append(f"  ... and {len(schema) - MOST_LISTED} more; in all {told}")
    return lines + _left_out(schema)


def _left_out(schema: Schema) -> list[str]:
    dropped = list(schema.dropped.items())
    lines = [f"  left out: {name} ({why})" for name, why in dropped[:MOST_LISTED]]
    more = len(dropped) - len(lines)
    return lines + ([f"  ... and {more:,} more left out"] if more else [])


def describe_column(column: Column) -> str:
    """The kind of a column, with its states or its mean and scale."""
    if not column.is_discrete:
        digits = max(4, len(str(int(abs(column.mean)))))  # whole numbers are never cut short
        size = f"{column.mean:.{digits}g} ± {column.scale:.4g}"
        told = size if column.kind == "real" else f"root mean square {column.scale:.4g}"
        return f"{column.kind}: {told}"
    states = [" ".join(state.split()) for state in column.states[:6]]  # without line breaks
    shown = ", ".join(states) + (", ..." if column.n_states > 6 else "")
    count = f" of {column.n_states}" if column.n_states > 6 else ""
    return f"{column.kind}{count}: {shown}"
