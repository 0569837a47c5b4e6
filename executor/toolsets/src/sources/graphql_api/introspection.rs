//! Introspection of an endpoint.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// The introspection query. It unwraps seven levels of lists and non-null types.
pub(super) const QUERY: &str = "query IntrospectionQuery { __schema { \
    queryType { name } mutationType { name } \
    types { kind name \
        fields(includeDeprecated: true) { name description args { ...I } type { ...T } } \
        inputFields { ...I } enumValues(includeDeprecated: true) { name } \
        possibleTypes { name } } } } \
    fragment I on __InputValue { name description type { ...T } defaultValue } \
    fragment T on __Type { kind name ofType { kind name ofType { kind name ofType { kind name \
        ofType { kind name ofType { kind name ofType { kind name ofType { kind name } } } } } } } }";

#[derive(Debug)]
pub(super) struct Types {
    pub(super) all: BTreeMap<String, Type>,
    pub(super) query: Option<String>,
    pub(super) mutation: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Schema {
    query_type: Option<Named>,
    mutation_type: Option<Named>,
    types: Vec<Type>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Named {
    pub(super) name: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Type {
    pub(super) kind: Kind,
    name: String,
    pub(super) fields: Option<Vec<Field>>,
    pub(super) input_fields: Option<Vec<Argument>>,
    pub(super) enum_values: Option<Vec<Named>>,
    pub(super) possible_types: Option<Vec<Named>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum Kind {
    Scalar,
    Object,
    Interface,
    Union,
    Enum,
    InputObject,
    List,
    NonNull,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) args: Vec<Argument>,
    #[serde(rename = "type")]
    pub(super) of: Ref,
}

/// An argument of a field, or a field of an input.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Argument {
    pub(super) name: String,
    pub(super) description: Option<String>,
    #[serde(rename = "type")]
    pub(super) of: Ref,
    pub(super) default_value: Option<String>,
}

/// A use of a type: a name, or a list or non-null type around it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ref {
    pub(super) kind: Kind,
    pub(super) name: Option<String>,
    pub(super) of_type: Option<Box<Ref>>,
}

impl Types {
    /// Parses the result of [`QUERY`].
    pub(super) fn read(schema: Value) -> Result<Self, String> {
        let schema: Schema = serde_json::from_value(schema)
            .map_err(|err| format!("its schema cannot be read: {err}"))?;
        let all = schema.types.into_iter().map(|known| (known.name.clone(), known)).collect();
        Ok(Self {
            all,
            query: schema.query_type.map(|named| named.name),
            mutation: schema.mutation_type.map(|named| named.name),
        })
    }

    /// Returns the fields of a type. An unknown type has none.
    pub(super) fn fields(&self, name: Option<&str>) -> &[Field] {
        let fields =
            name.and_then(|name| self.all.get(name)).and_then(|known| known.fields.as_deref());
        fields.unwrap_or_default()
    }

    /// Returns the named type inside lists and non-null types.
    pub(super) fn named<'a>(&'a self, of: &'a Ref) -> Option<(&'a str, &'a Type)> {
        let name = of.base()?;
        Some((name, self.all.get(name)?))
    }
}

impl Ref {
    /// Returns the name inside lists and non-null types.
    pub(super) fn base(&self) -> Option<&str> {
        match &self.of_type {
            Some(inner) => inner.base(),
            None => self.name.as_deref(),
        }
    }

    /// Returns the type in GraphQL syntax, such as `[ID!]!`.
    pub(super) fn written(&self) -> String {
        let inner = || self.of_type.as_ref().map(|inner| inner.written()).unwrap_or_default();
        match self.kind {
            Kind::NonNull => format!("{}!", inner()),
            Kind::List => format!("[{}]", inner()),
            _ => self.name.clone().unwrap_or_default(),
        }
    }
}

impl Argument {
    pub(super) fn is_required(&self) -> bool {
        self.of.kind == Kind::NonNull && self.default_value.is_none()
    }
}
