use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// The introspection query. It unwraps seven levels of lists and non-null types.
pub(super) const INTROSPECTION_QUERY: &str = "query IntrospectionQuery { __schema { \
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
    pub(super) by_name: BTreeMap<String, Type>,
    pub(super) query_type: Option<String>,
    pub(super) mutation_type: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Schema {
    query_type: Option<NamedType>,
    mutation_type: Option<NamedType>,
    types: Vec<Type>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct NamedType {
    pub(super) name: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Type {
    pub(super) kind: TypeKind,
    name: String,
    pub(super) fields: Option<Vec<Field>>,
    pub(super) input_fields: Option<Vec<Argument>>,
    pub(super) enum_values: Option<Vec<NamedType>>,
    pub(super) possible_types: Option<Vec<NamedType>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum TypeKind {
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
    pub(super) type_ref: TypeRef,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Argument {
    pub(super) name: String,
    pub(super) description: Option<String>,
    #[serde(rename = "type")]
    pub(super) type_ref: TypeRef,
    pub(super) default_value: Option<String>,
}

/// A use of a type: a name, or a list or non-null type around it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TypeRef {
    pub(super) kind: TypeKind,
    pub(super) name: Option<String>,
    pub(super) of_type: Option<Box<TypeRef>>,
}

impl Types {
    /// Parses the result of [`INTROSPECTION_QUERY`].
    pub(super) fn read(schema: Value) -> Result<Self, String> {
        let schema: Schema = serde_json::from_value(schema)
            .map_err(|err| format!("the schema of the endpoint cannot be read: {err}"))?;
        let all = schema.types.into_iter().map(|known| (known.name.clone(), known)).collect();
        Ok(Self {
            by_name: all,
            query_type: schema.query_type.map(|named| named.name),
            mutation_type: schema.mutation_type.map(|named| named.name),
        })
    }

    pub(super) fn fields(&self, name: Option<&str>) -> &[Field] {
        let fields =
            name.and_then(|name| self.by_name.get(name)).and_then(|known| known.fields.as_deref());
        fields.unwrap_or_default()
    }

    pub(super) fn named_type<'a>(&'a self, type_ref: &'a TypeRef) -> Option<(&'a str, &'a Type)> {
        let name = type_ref.base_name()?;
        Some((name, self.by_name.get(name)?))
    }
}

impl TypeRef {
    pub(super) fn base_name(&self) -> Option<&str> {
        match &self.of_type {
            Some(inner) => inner.base_name(),
            None => self.name.as_deref(),
        }
    }

    /// Returns the type in GraphQL syntax, such as `[ID!]!`.
    pub(super) fn to_graphql(&self) -> String {
        let inner = || self.of_type.as_ref().map(|inner| inner.to_graphql()).unwrap_or_default();
        match self.kind {
            TypeKind::NonNull => format!("{}!", inner()),
            TypeKind::List => format!("[{}]", inner()),
            _ => self.name.clone().unwrap_or_default(),
        }
    }
}

impl Argument {
    pub(super) fn is_required(&self) -> bool {
        self.type_ref.kind == TypeKind::NonNull && self.default_value.is_none()
    }
}
