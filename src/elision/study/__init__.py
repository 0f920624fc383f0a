"""Studies on disk: any number of recorded runs, replayed or audited shard by shard, and reported from Parquet."""
