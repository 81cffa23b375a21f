"""Table maintenance: compaction, rewriting of deletes and manifests, expiry of snapshots, removal of orphan files."""
