//! Filesystem service: files of one project, opened only beneath its root.
