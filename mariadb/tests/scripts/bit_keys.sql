-- Bug: keys of BIT columns had bits of another place of the record, so ranges missed rows.
-- Cause: the key image was asked for at the record, not at the field. Fix: at the field.
CREATE TABLE b (id INT PRIMARY KEY, t TEXT, c BIT(11), KEY k (c, t(10)), UNIQUE KEY u (c, id));
INSERT INTO b VALUES (27, 'a', b'11111111111'), (1, NULL, b'0'), (2, 'x', b'11'), (3, 'y', NULL), (4, '', b'10000000000');
SELECT id, HEX(c) FROM b FORCE INDEX (k) WHERE c > b'11' ORDER BY id FOR UPDATE;
SELECT id, HEX(c) FROM b FORCE INDEX (k) WHERE c = b'11111111111';
SELECT id, HEX(c) FROM b FORCE INDEX (u) WHERE c <= b'10000000000' ORDER BY c, id;
UPDATE b FORCE INDEX (u) SET t = 'z' WHERE c >= b'10000000000';
SELECT id, t, HEX(c) FROM b ORDER BY id;
CHECK TABLE b;
