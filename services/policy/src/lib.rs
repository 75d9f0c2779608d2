//! Policy service: JSON Schema validation and permission decisions.
