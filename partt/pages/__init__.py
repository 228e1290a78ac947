"""What pages of reports share: figures, numbers and names as text, style, and how a folder is written."""
