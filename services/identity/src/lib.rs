//! Identity service: workspaces, tokens and launches on the host, pins and sessions on the edge.
