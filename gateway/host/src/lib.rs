//! The agent host: channel server, call journal, MCP and identity HTTP API.
