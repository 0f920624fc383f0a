"""Studies on disk: any number of recorded runs, replayed shard by shard, and reported from Parquet."""
