//! What is told of one operation.

use schemars::{JsonSchema, Schema, SchemaGenerator};

/// One operation of the HTTP API.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    /// Its name in generated clients.
    pub(crate) id: &'static str,
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// What it does, in one line.
    pub(crate) summary: &'static str,
    pub(crate) access: Access,
    /// The body of a request.
    pub(crate) takes: Option<Content>,
    /// The body of the answer when it is done.
    pub(crate) gives: Content,
    /// What it refuses beside what its access and its body imply.
    pub(crate) refusals: &'static [Refusal],
    /// What can be done with the answer.
    pub(crate) links: &'static [Link],
}

/// Method of an operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Method {
    Get,
    Post,
}

impl Method {
    /// Its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
        }
    }

    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
        }
    }
}

/// Who may ask.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    Everybody,
    /// Whoever has a token of this scope.
    Scope(&'static str),
    /// A channel token. The operation opens a channel, and has an answer of its own form.
    Channel,
}

/// A JSON body.
#[derive(Clone, Copy)]
pub(crate) struct Content {
    pub(crate) description: &'static str,
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
    /// JSON; empty for none.
    pub(crate) example: &'static str,
}

impl Content {
    /// A body in the form of a type.
    pub(crate) const fn of<T: JsonSchema>(
        description: &'static str,
        example: &'static str,
    ) -> Self {
        Self {
            description,
            schema: SchemaGenerator::subschema_for::<T>,
            example,
        }
    }
}

/// One way in which a request is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// The problem's `code`.
    pub(crate) code: &'static str,
    /// When it comes, in one sentence.
    pub(crate) when: &'static str,
    /// Header fields that come with the status, whatever the code.
    pub(crate) headers: &'static [&'static str],
}

impl Refusal {
    pub(crate) const fn new(status: u16, code: &'static str, when: &'static str) -> Self {
        Self {
            status,
            code,
            when,
            headers: &[],
        }
    }

    pub(crate) const fn with(self, headers: &'static [&'static str]) -> Self {
        Self { headers, ..self }
    }
}

/// What an answer holds for another operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) name: &'static str,
    /// The other operation.
    pub(crate) to: &'static str,
    /// Its body, JSON with runtime expressions.
    pub(crate) body: &'static str,
}
