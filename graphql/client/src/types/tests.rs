//! Compares the texts of fields with the schema, and the structs with the texts.

use std::collections::BTreeSet;

use async_graphql::parser::{
    parse_query, parse_schema,
    types::{
        FieldDefinition, ObjectType, Selection, SelectionSet, ServiceDocument, Type, TypeKind,
        TypeSystemDefinition,
    },
};
use serde::{de, forward_to_deserialize_any};

use super::*;

/// Reads only the names of the fields of a struct, and then fails.
struct FieldNames<'a>(&'a mut &'static [&'static str]);

impl<'de> de::Deserializer<'de> for FieldNames<'_> {
    type Error = de::value::Error;

    fn deserialize_struct<V: de::Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = fields;
        Err(de::Error::custom("only names are read"))
    }

    fn deserialize_any<V: de::Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(de::Error::custom("this is no struct"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

fn object<'a>(schema: &'a ServiceDocument, name: &str) -> &'a ObjectType {
    let found = schema.definitions.iter().find_map(|definition| match definition {
        TypeSystemDefinition::Type(found) if found.node.name.node == name => match &found.node.kind
        {
            TypeKind::Object(object) => Some(object),
            _ => None,
        },
        _ => None,
    });
    found.unwrap_or_else(|| panic!("there is no object {name}"))
}

fn base(of: &Type) -> String {
    of.to_string().replace(['[', ']', '!'], "")
}

/// Checks that a selection fits an object of the schema. Returns the names of its own fields.
fn check(schema: &ServiceDocument, name: &str, selection: &SelectionSet) -> BTreeSet<String> {
    let fields = &object(schema, name).fields;
    let mut names = BTreeSet::new();
    for item in &selection.items {
        let Selection::Field(field) = &item.node else { panic!("fragments are not used") };
        let field = &field.node;
        let known = fields.iter().find(|known| known.node.name.node == field.name.node);
        let known = known.unwrap_or_else(|| panic!("{name} has no field {}", field.name.node));
        if !field.selection_set.node.items.is_empty() {
            check(schema, &base(&known.node.ty.node), &field.selection_set.node);
        }
        names.insert(field.name.node.to_string());
    }
    names
}

fn is_plain_value(schema: &ServiceDocument, field: &FieldDefinition) -> bool {
    let of = base(&field.ty.node);
    let is_object = schema.definitions.iter().any(|definition| {
        matches!(definition, TypeSystemDefinition::Type(found)
            if found.node.name.node == of && matches!(found.node.kind, TypeKind::Object(_)))
    });
    let is_required = |argument: &async_graphql::parser::types::InputValueDefinition| {
        !argument.ty.node.nullable && argument.default_value.is_none()
    };
    !is_object && !field.arguments.iter().any(|argument| is_required(&argument.node))
}

/// Checks a text and the struct that reads it. A `whole` text has all plain values of its object.
#[track_caller]
fn fits<T: for<'de> Deserialize<'de>>(name: &str, text: &str, whole: bool) {
    let schema = parse_schema(graphql::schema::sdl()).unwrap();
    let query = parse_query(format!("{{ {text} }}")).unwrap();
    let (_, operation) = query.operations.iter().next().unwrap();
    let selected = check(&schema, name, &operation.node.selection_set.node);
    let mut read: &'static [&'static str] = &[];
    let _ = T::deserialize(FieldNames(&mut read));
    assert!(!read.is_empty(), "{name} is read by a struct");
    if whole {
        let missing: Vec<_> = read.iter().filter(|field| !selected.contains(**field)).collect();
        // Only summaries have retries.
        assert!(missing.iter().all(|field| **field == "retries"), "{name} lacks {missing:?}");
        for field in &object(&schema, name).fields {
            let is_selected = selected.contains(field.node.name.node.as_str());
            assert!(is_selected || !is_plain_value(&schema, &field.node), "{}", field.node.name);
        }
    } else {
        let unread: Vec<_> =
            selected.iter().filter(|field| !read.contains(&field.as_str())).collect();
        assert!(unread.iter().all(|field| **field == "requestId"), "nobody reads {unread:?}");
    }
}

#[test]
fn selected_fields_exist_in_the_schema() {
    fits::<ExecutionStatus>("Execution", &ExecutionStatus::fields(), true);
    fits::<ExecutionStatus>("Execution", ExecutionStatus::SUMMARY, false);
    fits::<ExecutionHead>("Execution", ExecutionHead::FIELDS, false);
    fits::<Replanning>("Replanning", Replanning::FIELDS, true);
    fits::<StepError>("StepError", StepError::FIELDS, true);
    fits::<StepStatus>("StepStatus", &StepStatus::fields(), true);
    fits::<ItemTally>("ItemTally", ItemTally::FIELDS, true);
    fits::<Finding>("Finding", Finding::FIELDS, true);
    fits::<Finding>("Finding", Finding::ROW, false);
    fits::<Plan>("Plan", &Plan::fields(), true);
    fits::<Plan>("Plan", Plan::SHOWN, false);
    fits::<PlannedStep>("ToolExecution", PlannedStep::FIELDS, true);
    fits::<Diagnostic>("Diagnostic", DIAGNOSTIC, true);
    fits::<Request>("Request", &Request::fields(1), true);
    fits::<TimelineEntry>("TimelineEntry", TimelineEntry::FIELDS, true);
    fits::<Event>("ExecutionEvent", Event::FIELDS, false);
    fits::<RepeatedCall>("RepeatedCall", RepeatedCall::FIELDS, true);
    fits::<SavedPlan>("SavedPlan", SavedPlan::FIELDS, true);
    fits::<Tool>("Tool", Tool::FIELDS, true);
    fits::<ToolMatch>("ToolMatch", &ToolMatch::fields(), true);
    fits::<ToolSet>("ToolSet", &ToolSet::fields(), true);
    fits::<ToolSetChange>("ToolSetChange", &ToolSetChange::fields(), true);
    fits::<ToolResult>("ToolResult", ToolResult::FIELDS, true);
    fits::<ToolUsage>("ToolUsage", ToolUsage::FIELDS, true);
    fits::<ToolCollision>("ToolCollision", ToolCollision::FIELDS, true);
    fits::<Toolkit>("Toolkit", Toolkit::SHOWN, false);
    fits::<Pruned>("Pruned", Pruned::FIELDS, true);
}
