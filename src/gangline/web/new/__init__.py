"""The screen of a new job: its form, its plan while one types, and its submission."""
