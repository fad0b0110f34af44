"""What every command that submits has in common: it shows a plan, uploads, submits and watches; one job or an experiment."""
