"""Routes that submit jobs and list them."""
