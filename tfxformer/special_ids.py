"""The four token ids that are no text, the same in every vocabulary."""

PAD_ID, UNK_ID, START_ID, END_ID = 0, 1, 2, 3
