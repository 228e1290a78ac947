"""Files + data config -> what would stop or spoil a job."""
