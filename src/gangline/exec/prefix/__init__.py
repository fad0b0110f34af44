"""List and remove what lies below a prefix. These calls need no running command."""
