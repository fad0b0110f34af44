-- The machine that the provider shows at the place of a rented node, where nodes prove which machine they are on.

ALTER TABLE node ADD COLUMN shown_machine TEXT NOT NULL DEFAULT '';
