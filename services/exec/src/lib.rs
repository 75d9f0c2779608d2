//! Exec worker: commands with a terminal, a spool and a process tree.
