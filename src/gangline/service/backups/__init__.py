"""What follows a restore: attempts of the past end, and what rows refer to is looked for."""
