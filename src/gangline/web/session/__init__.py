"""Sign in, sign out, choose a project and a theme."""
