-- With the first record of an append: its id and how many records it has, so that it is recognized when it is repeated.

ALTER TABLE records ADD COLUMN batch BLOB;
