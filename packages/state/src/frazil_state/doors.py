"""What the package adds to Frazil, by its entry points."""

from frazil.plugins.tables import TableKind

DEDUPE = TableKind(
    "frazil_state.driver:DedupedTable",
    "frazil_state.tasks:DedupedRecords",
    compile_loops="frazil_state.loops:of_dedupe",
)
HISTORY = TableKind(
    "frazil_state.driver:HistoryTable",
    "frazil_state.tasks:HistoryRecords",
    compile_loops="frazil_state.loops:of_history",
)
MERGE = TableKind(
    "frazil_state.driver:MergedTable",
    "frazil_state.tasks:MergedRecords",
    read_groups="frazil_state.sql:read_groups",
    analyse_groups="frazil_state.group_by:analyse_grouped",
    compile_loops="frazil_state.loops:of_merge",
)
