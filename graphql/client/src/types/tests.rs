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

/// A deserializer that stores the names of a struct's fields and then fails, because it needs no
/// values.
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
        Err(de::Error::custom("this is not a struct"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

fn find_object<'a>(schema: &'a ServiceDocument, name: &str) -> &'a ObjectType {
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

fn strip_modifiers(of: &Type) -> String {
    of.to_string().replace(['[', ']', '!'], "")
}

/// Checks that a selection fits an object of the schema. Returns the names of the object's selected
/// fields, without those of nested objects.
fn check_selection(
    schema: &ServiceDocument,
    name: &str,
    selection: &SelectionSet,
) -> BTreeSet<String> {
    let fields = &find_object(schema, name).fields;
    let mut names = BTreeSet::new();
    for item in &selection.items {
        let Selection::Field(field) = &item.node else { panic!("fragments are not used") };
        let field = &field.node;
        let known = fields.iter().find(|known| known.node.name.node == field.name.node);
        let known = known.unwrap_or_else(|| panic!("{name} has no field {}", field.name.node));
        if !field.selection_set.node.items.is_empty() {
            check_selection(
                schema,
                &strip_modifiers(&known.node.ty.node),
                &field.selection_set.node,
            );
        }
        names.insert(field.name.node.to_string());
    }
    names
}

fn is_plain_value(schema: &ServiceDocument, field: &FieldDefinition) -> bool {
    let type_name = strip_modifiers(&field.ty.node);
    let is_object = schema.definitions.iter().any(|definition| {
        matches!(definition, TypeSystemDefinition::Type(found)
            if found.node.name.node == type_name && matches!(found.node.kind, TypeKind::Object(_)))
    });
    let is_required = |argument: &async_graphql::parser::types::InputValueDefinition| {
        !argument.ty.node.nullable && argument.default_value.is_none()
    };
    !is_object && !field.arguments.iter().any(|argument| is_required(&argument.node))
}

#[track_caller]
fn check_fields<T: for<'de> Deserialize<'de>>(name: &str, text: &str, needs_all_values: bool) {
    let schema = parse_schema(graphql::schema::schema_text()).unwrap();
    let query = parse_query(format!("{{ {text} }}")).unwrap();
    let (_, operation) = query.operations.iter().next().unwrap();
    let selected = check_selection(&schema, name, &operation.node.selection_set.node);
    let mut read: &'static [&'static str] = &[];
    let _ = T::deserialize(FieldNames(&mut read));
    assert!(!read.is_empty(), "{name} is read by a struct");
    if needs_all_values {
        let missing: Vec<_> = read.iter().filter(|field| !selected.contains(**field)).collect();
        let is_summary = |field: &&&str| ["retries", "forks"].contains(*field);
        assert!(missing.iter().all(is_summary), "{name} lacks {missing:?}");
        for field in &find_object(&schema, name).fields {
            let is_selected = selected.contains(field.node.name.node.as_str());
            // `--json` leaves out the trace, because it is large: `faber trace export` prints it.
            // It leaves out enums with a string beside them, and `id` beside an id with a longer
            // name, because JSON would have the same text twice.
            let name = field.node.name.node.as_str();
            let is_left_out = ["id", "trace"].contains(&name) || name.ends_with("Enum");
            let is_needed = is_plain_value(&schema, &field.node) && !is_left_out;
            assert!(is_selected || !is_needed, "{}", field.node.name);
        }
    } else {
        let unread: Vec<_> =
            selected.iter().filter(|field| !read.contains(&field.as_str())).collect();
        assert!(unread.iter().all(|field| **field == "requestId"), "no struct reads {unread:?}");
    }
}

#[test]
fn selected_fields_exist_in_the_schema() {
    check_fields::<ExecutionStatus>("Execution", &ExecutionStatus::fields(), true);
    check_fields::<ExecutionStatus>("Execution", ExecutionStatus::SUMMARY_FIELDS, false);
    check_fields::<ExecutionHead>("Execution", ExecutionHead::FIELDS, false);
    check_fields::<Replanning>("Replanning", Replanning::FIELDS, true);
    check_fields::<StepError>("StepError", StepError::FIELDS, true);
    check_fields::<StepStatus>("StepStatus", &StepStatus::fields(), true);
    check_fields::<ItemTally>("ItemTally", ItemTally::FIELDS, true);
    check_fields::<Finding>("Finding", Finding::FIELDS, true);
    check_fields::<Finding>("Finding", Finding::ROW_FIELDS, false);
    check_fields::<Plan>("Plan", &Plan::fields(), true);
    check_fields::<Plan>("Plan", Plan::VIEW_FIELDS, false);
    check_fields::<PlannedStep>("ToolExecution", PlannedStep::FIELDS, true);
    check_fields::<Diagnostic>("Diagnostic", DIAGNOSTIC_FIELDS, true);
    check_fields::<Request>("Request", &Request::fields(1), true);
    check_fields::<TimelineEntry>("TimelineEntry", TimelineEntry::FIELDS, true);
    check_fields::<Event>("ExecutionEvent", Event::FIELDS, false);
    check_fields::<RepeatedCall>("RepeatedCall", RepeatedCall::FIELDS, true);
    check_fields::<ForkPreview>("ForkPreview", &ForkPreview::fields(), true);
    check_fields::<OnceCall>("OnceCall", OnceCall::FIELDS, true);
    check_fields::<SavedPlan>("SavedPlan", SavedPlan::FIELDS, true);
    check_fields::<Tool>("Tool", Tool::FIELDS, true);
    check_fields::<ToolMatch>("ToolMatch", &ToolMatch::fields(), true);
    check_fields::<ToolSet>("ToolSet", &ToolSet::fields(), true);
    check_fields::<ToolSetChange>("ToolSetChange", &ToolSetChange::fields(), true);
    check_fields::<ToolResult>("ToolResult", ToolResult::FIELDS, true);
    check_fields::<ToolUsage>("ToolUsage", ToolUsage::FIELDS, true);
    check_fields::<ToolCollision>("ToolCollision", ToolCollision::FIELDS, true);
    check_fields::<Toolkit>("Toolkit", Toolkit::VIEW_FIELDS, false);
    check_fields::<Pruned>("Pruned", Pruned::FIELDS, true);
    check_fields::<AuditEntry>("AuditEntry", AuditEntry::FIELDS, true);
    check_fields::<ExecutionCount>("ExecutionCount", ExecutionCount::FIELDS, true);
    check_fields::<Worker>("Worker", Worker::FIELDS, true);
}
