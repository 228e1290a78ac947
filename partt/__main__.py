"""`python -m partt` is the `partt` command: what torchrun and SLURM start."""

from partt.cli.main import main

raise SystemExit(main())
