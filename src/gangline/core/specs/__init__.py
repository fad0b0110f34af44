"""What a job asks for, and what each of its settings decides."""
