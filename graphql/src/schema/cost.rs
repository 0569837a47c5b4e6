//! Computes the cost of an operation before it runs. The cost of a fragment is computed once, so
//! that nested fragments cannot make the computation itself expensive.

use std::collections::BTreeMap;

use async_graphql::{
    Name, Positioned, Value, Variables,
    parser::{
        parse_schema,
        types::{
            BaseType, DocumentOperations, ExecutableDocument, Field, FieldDefinition,
            InputValueDefinition, OperationDefinition, OperationType, Selection, SelectionSet,
            Type, TypeKind, TypeSystemDefinition,
        },
    },
};

/// Field that itself costs more than one, or whose number of items is given here. The cost of its
/// selection is added.
struct ExpensiveField {
    field: &'static str,
    base_cost: usize,
    items: ItemCount,
}

#[derive(Clone, Copy, Debug)]
enum ItemCount {
    /// The number in an argument such as `first`, or the default of this argument.
    Requested,
    /// A fixed number that does not depend on the arguments.
    Expected(usize),
    /// The requested number divided by this number, because the items are cheap.
    RequestedDividedBy(usize),
}

const fn field_cost(field: &'static str, base_cost: usize) -> ExpensiveField {
    ExpensiveField { field, base_cost, items: ItemCount::Requested }
}

const fn list_cost(field: &'static str, base_cost: usize, items: usize) -> ExpensiveField {
    ExpensiveField { field, base_cost, items: ItemCount::Expected(items) }
}

const fn fraction_cost(field: &'static str, base_cost: usize, divisor: usize) -> ExpensiveField {
    ExpensiveField { field, base_cost, items: ItemCount::RequestedDividedBy(divisor) }
}

const EXPENSIVE_FIELDS: &[ExpensiveField] = &[
    // These fields read from the store.
    field_cost("Query.request", 5),
    field_cost("Query.plan", 5),
    field_cost("Query.execution", 5),
    list_cost("Query.plansByRequestId", 5, 3),
    field_cost("Query.executionCounts", 500),
    field_cost("RequestConnection.totalCount", 5),
    field_cost("PlanConnection.totalCount", 5),
    field_cost("ExecutionConnection.totalCount", 5),
    field_cost("AuditEntryConnection.totalCount", 5),
    field_cost("SavedPlanConnection.totalCount", 50),
    field_cost("ToolResultConnection.totalCount", 50),
    field_cost("Query.audit", 5),
    field_cost("Query.toolHistoryConnection", 5),
    field_cost("Query.node", 20),
    // This field reads the executions of each worker.
    field_cost("Query.workers", 50),
    field_cost("Query.blob", 1_000),
    field_cost("Query.exportPlan", 200),
    list_cost("Request.plans", 1, 3),
    list_cost("Request.transcript", 20, 10),
    fraction_cost("Request.timeline", 100, 50),
    fraction_cost("Execution.events", 10, 50),
    field_cost("Execution.parent", 5),
    // This field reads the log, and the logs of child executions.
    field_cost("Execution.trace", 1_000),
    field_cost("Execution.next", 5),
    field_cost("Execution.replanning", 5),
    list_cost("Execution.waitsFor", 5, 5),
    // This field reads the 1000 newest executions of the plan.
    list_cost("Execution.retries", 1_000, 5),
    list_cost("Execution.repeatedCalls", 20, 5),
    // This field reads the index of labels.
    list_cost("Execution.forks", 5, 5),
    // This field compiles the changed plan.
    field_cost("Execution.forkPreview", 500),
    // This field reads child executions.
    list_cost("Execution.undoCalls", 20, 5),
    field_cost("Request.planningError", 10),
    // This field reads the head and the inbox, or the log if `atSeq` is given.
    field_cost("Execution.findings", 20),
    field_cost("Request.findings", 10),
    list_cost("StepStatus.items", 1, 2),
    field_cost("StepStatus.child", 5),
    fraction_cost("Query.toolHistory", 5, 10),
    field_cost("Query.toolUsage", 50),
    // These fields compile, draw or compare.
    field_cost("Query.validatePlan", 500),
    field_cost("Plan.mermaid", 20),
    field_cost("Plan.dot", 20),
    field_cost("Plan.layout", 2_000),
    field_cost("Toolkit.mermaid", 200),
    field_cost("Toolkit.dot", 200),
    field_cost("Toolkit.yaml", 200),
    field_cost("Toolkit.svg", 2_000),
    field_cost("Toolkit.layout", 2_000),
    field_cost("Query.tools", 20),
    field_cost("Query.toolSchemas", 500),
    field_cost("Query.parseToolCalls", 500),
    // `HYBRID` takes about ten milliseconds. With this cost, an operation can contain about seventy
    // selections.
    field_cost("Query.selectTools", 2_000),
    field_cost("Query.toolCollisions", 5_000),
    field_cost("Query.toolkit", 20),
    field_cost("Query.toolkitSubgraph", 20),
    field_cost("Query.toolkitScore", 20),
    field_cost("Query.recommendSubgraph", 100),
    field_cost("Query.recommendToolsActions", 100),
    field_cost("Query.toolFollowers", 20),
    // These fields call a model.
    field_cost("Mutation.createPlanWithRequestId", 5_000),
    field_cost("Mutation.planQuery", 5_000),
    field_cost("Mutation.run", 5_000),
    field_cost("Mutation.runAgent", 5_000),
    field_cost("Mutation.replanExecution", 5_000),
    // These fields compile and write.
    field_cost("Mutation.createPlan", 500),
    field_cost("Mutation.revisePlan", 500),
    field_cost("Mutation.executePlan", 200),
    field_cost("Mutation.executeByRequestId", 200),
    field_cost("Mutation.runSavedPlan", 200),
    field_cost("Mutation.retryExecution", 200),
    field_cost("Mutation.forkExecution", 500),
    field_cost("Mutation.callTool", 1_000),
    field_cost("Mutation.bulkControl", 5_000),
    field_cost("Mutation.prune", 5_000),
    field_cost("Mutation.updateToolkit", 1_000),
    field_cost("Mutation.addToolSet", 200),
    field_cost("Mutation.registerTool", 200),
    field_cost("Mutation.cancelExecution", 20),
    field_cost("Mutation.pauseExecution", 20),
    field_cost("Mutation.resumeExecution", 20),
    field_cost("Mutation.approveStep", 20),
    field_cost("Mutation.settleStep", 20),
    field_cost("Mutation.signalExecution", 20),
    field_cost("Mutation.savePlan", 20),
    field_cost("Mutation.storePlan", 20),
    field_cost("Mutation.removeSavedPlan", 20),
    field_cost("Mutation.removeTool", 20),
    field_cost("Mutation.removeToolSet", 20),
    field_cost("Mutation.activateToolSets", 50),
    field_cost("Mutation.deactivateToolSets", 50),
    field_cost("Mutation.setContext", 20),
    field_cost("Mutation.addAction", 50),
    field_cost("Mutation.connectTool", 50),
    field_cost("Mutation.removeAction", 20),
    field_cost("Mutation.disconnectTool", 20),
    field_cost("Mutation.setScore", 20),
    // Introspection. The numbers of items are averages over this schema.
    field_cost("Query.__schema", 20),
    field_cost("Query.__type", 20),
    list_cost("__Schema.types", 10, 100),
    list_cost("__Schema.directives", 10, 6),
    list_cost("__Type.fields", 1, 4),
    list_cost("__Type.inputFields", 1, 2),
    list_cost("__Type.enumValues", 1, 2),
    list_cost("__Type.interfaces", 1, 1),
    list_cost("__Type.possibleTypes", 1, 1),
    list_cost("__Field.args", 1, 2),
    list_cost("__Directive.args", 1, 2),
    field_cost("__Type.ofType", 1),
    field_cost("__Field.type", 1),
    field_cost("__InputValue.type", 1),
    field_cost("__Schema.queryType", 1),
    field_cost("__Schema.mutationType", 1),
    field_cost("__Schema.subscriptionType", 1),
    field_cost("Subscription.executionEvents", 20),
    field_cost("Subscription.executionStatus", 20),
    field_cost("Subscription.requestEvents", 50),
];

const INTROSPECTION_FIELDS: [(&str, &str); 17] = [
    ("Query.__schema", "__Schema"),
    ("Query.__type", "__Type"),
    ("__Schema.types", "__Type"),
    ("__Schema.queryType", "__Type"),
    ("__Schema.mutationType", "__Type"),
    ("__Schema.subscriptionType", "__Type"),
    ("__Schema.directives", "__Directive"),
    ("__Type.fields", "__Field"),
    ("__Type.inputFields", "__InputValue"),
    ("__Type.enumValues", "__EnumValue"),
    ("__Type.interfaces", "__Type"),
    ("__Type.possibleTypes", "__Type"),
    ("__Type.ofType", "__Type"),
    ("__Field.type", "__Type"),
    ("__InputValue.type", "__Type"),
    ("__Field.args", "__InputValue"),
    ("__Directive.args", "__InputValue"),
];

/// Expected number of items of a list that has no argument such as `first`.
const DEFAULT_ITEM_COUNT: usize = 10;

/// Largest number of items that counts. [`ItemCount::RequestedDividedBy`] divides the requested
/// number before this limit applies.
const MAX_COUNTED_ITEMS: usize = 1_000;

#[derive(Debug)]
pub(super) struct Costs {
    fields: BTreeMap<String, FieldCost>,
}

#[derive(Debug, Clone)]
struct FieldCost {
    /// Name of the returned type. For a list, the type of its items.
    type_name: String,
    base_cost: usize,
    items: ItemCount,
    /// Arguments for the number of items, such as `first` and `last`.
    count_arguments: Vec<String>,
    /// Number of items if the document has none of these arguments.
    default_count: usize,
}

/// Cost of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) total: usize,
    /// Most expensive root field, with its cost.
    pub(super) most_expensive: Option<(String, usize)>,
}

impl Costs {
    pub(super) fn new(sdl: &str) -> Self {
        let mut fields = BTreeMap::new();
        let definitions =
            parse_schema(sdl).map(|document| document.definitions).unwrap_or_default();
        for definition in definitions {
            let TypeSystemDefinition::Type(definition) = definition else { continue };
            let TypeKind::Object(object) = &definition.node.kind else { continue };
            let name = &definition.node.name.node;
            for field in &object.fields {
                let path = format!("{name}.{}", field.node.name.node);
                fields.insert(path, FieldCost::from_definition(name, &field.node));
            }
        }
        for (path, type_name) in INTROSPECTION_FIELDS {
            let cost = FieldCost {
                type_name: type_name.to_owned(),
                base_cost: 1,
                items: ItemCount::Expected(1),
                count_arguments: Vec::new(),
                default_count: 1,
            };
            fields.insert(path.to_owned(), cost);
        }
        for ExpensiveField { field, base_cost, items } in EXPENSIVE_FIELDS {
            if let Some(cost) = fields.get_mut(*field) {
                cost.base_cost = *base_cost;
                if !matches!(items, ItemCount::Requested) {
                    cost.items = *items;
                }
            }
        }
        Self { fields }
    }

    /// Computes the cost of the named operation. Without a name, computes the cost of the most
    /// expensive operation of the document.
    pub(super) fn compute_cost(
        &self,
        document: &ExecutableDocument,
        name: Option<&str>,
        variables: &Variables,
    ) -> Cost {
        let operations: Vec<_> = match (&document.operations, name) {
            (DocumentOperations::Single(operation), _) => vec![operation],
            (DocumentOperations::Multiple(all), Some(name)) => all.get(name).into_iter().collect(),
            (DocumentOperations::Multiple(all), None) => all.values().collect(),
        };
        let costs = operations.into_iter().map(|operation| {
            let operation = &operation.node;
            let fragment_costs = BTreeMap::new();
            CostComputation { costs: self, document, operation, variables, fragment_costs }
                .compute()
        });
        costs.max_by_key(|cost| cost.total).unwrap_or(Cost { total: 0, most_expensive: None })
    }
}

impl FieldCost {
    fn from_definition(parent: &str, field: &FieldDefinition) -> Self {
        let (type_name, is_list) = unwrap_list_type(&field.ty.node);
        let counts = field.arguments.iter().filter(|argument| {
            matches!(argument.node.name.node.as_str(), "first" | "last" | "limit")
        });
        let counts: Vec<&InputValueDefinition> = counts.map(|argument| &argument.node).collect();
        let default =
            counts.iter().find_map(|argument| match &argument.default_value.as_ref()?.node {
                Value::Number(number) => usize::try_from(number.as_u64()?).ok(),
                _ => None,
            });
        let default_count =
            if counts.is_empty() { 1 } else { default.unwrap_or(DEFAULT_ITEM_COUNT) };
        let count_arguments: Vec<String> =
            counts.iter().map(|argument| argument.name.node.to_string()).collect();
        // A list in a connection is not counted again, because the field that returns the
        // connection has counted its items.
        let is_list = is_list && !parent.ends_with("Connection");
        let items = if count_arguments.is_empty() {
            ItemCount::Expected(if is_list { DEFAULT_ITEM_COUNT } else { 1 })
        } else {
            ItemCount::Requested
        };
        Self { type_name, base_cost: 1, items, count_arguments, default_count }
    }
}

/// Returns the name of a type, or of the items if the type is a list. Also returns `true` for a
/// list.
fn unwrap_list_type(ty: &Type) -> (String, bool) {
    match &ty.base {
        BaseType::Named(name) => (name.to_string(), false),
        BaseType::List(type_name) => (unwrap_list_type(type_name).0, true),
    }
}

struct CostComputation<'a> {
    costs: &'a Costs,
    document: &'a ExecutableDocument,
    operation: &'a OperationDefinition,
    variables: &'a Variables,
    /// Costs of fragments. A fragment that is being computed has the cost 0, so that the
    /// computation ends if fragments contain each other.
    fragment_costs: BTreeMap<&'a str, usize>,
}

impl<'a> CostComputation<'a> {
    fn compute(mut self) -> Cost {
        let root = match self.operation.ty {
            OperationType::Query => "Query",
            OperationType::Mutation => "Mutation",
            OperationType::Subscription => "Subscription",
        };
        let mut most_expensive: Option<(String, usize)> = None;
        let mut total = 0_usize;
        for selection in &self.operation.selection_set.node.items {
            let cost = self.selection_cost(root, &selection.node);
            total = total.saturating_add(cost);
            if most_expensive.as_ref().is_none_or(|(_, maximum)| cost > *maximum) {
                most_expensive = Some((selection_name(&selection.node), cost));
            }
        }
        Cost { total, most_expensive }
    }

    fn selection_set_cost(&mut self, parent: &str, set: &'a SelectionSet) -> usize {
        let costs = set.items.iter().map(|selection| self.selection_cost(parent, &selection.node));
        costs.fold(0, usize::saturating_add)
    }

    fn selection_cost(&mut self, parent: &str, selection: &'a Selection) -> usize {
        match selection {
            Selection::Field(field) => self.compute_field_cost(parent, &field.node),
            Selection::InlineFragment(inline) => {
                let on = inline
                    .node
                    .type_condition
                    .as_ref()
                    .map(|condition| condition.node.on.node.as_str());
                self.selection_set_cost(on.unwrap_or(parent), &inline.node.selection_set.node)
            }
            Selection::FragmentSpread(spread) => self.fragment_cost(&spread.node.fragment_name),
        }
    }

    fn fragment_cost(&mut self, name: &'a Positioned<Name>) -> usize {
        let name = name.node.as_str();
        if let Some(cost) = self.fragment_costs.get(name) {
            return *cost;
        }
        let Some(fragment) = self.document.fragments.get(name) else { return 1 };
        // Sets the cost first, so that a fragment that contains itself does not recurse. Validation
        // rejects such a fragment later.
        self.fragment_costs.insert(name, 0);
        let on = fragment.node.type_condition.node.on.node.as_str();
        let cost = self.selection_set_cost(on, &fragment.node.selection_set.node);
        self.fragment_costs.insert(name, cost);
        cost
    }

    fn compute_field_cost(&mut self, parent: &str, field: &'a Field) -> usize {
        let costs = self.costs;
        let cost = costs.fields.get(&format!("{parent}.{}", field.name.node));
        let type_name = cost.map_or("", |cost| cost.type_name.as_str());
        let selection_cost = self.selection_set_cost(type_name, &field.selection_set.node);
        let Some(cost) = cost else { return selection_cost.saturating_add(1) };
        let selection_cost =
            if field.selection_set.node.items.is_empty() { 0 } else { selection_cost.max(1) };
        let items = match cost.items {
            ItemCount::Expected(items) => items,
            ItemCount::Requested => {
                self.count_requested_items(cost, field).clamp(1, MAX_COUNTED_ITEMS)
            }
            ItemCount::RequestedDividedBy(divisor) => {
                (self.count_requested_items(cost, field) / divisor).clamp(1, MAX_COUNTED_ITEMS)
            }
        };
        cost.base_cost.saturating_add(items.saturating_mul(selection_cost))
    }

    fn count_requested_items(&self, cost: &FieldCost, field: &Field) -> usize {
        let requested = cost.count_arguments.iter().filter_map(|argument| {
            let given = field.get_argument(argument)?;
            let value = given.node.clone();
            match value.into_const_with(|name| self.variable_value(&name).ok_or(())) {
                Err(()) | Ok(Value::Null) => None,
                Ok(Value::Number(number)) => {
                    Some(number.as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(1))
                }
                // Another invalid value counts once, because the field itself rejects it.
                Ok(_) => Some(1),
            }
        });
        requested.max().unwrap_or(cost.default_count)
    }

    fn variable_value(&self, name: &Name) -> Option<Value> {
        let definitions = &self.operation.variable_definitions;
        let default = || {
            let definition =
                definitions.iter().find(|definition| definition.node.name.node == *name)?;
            definition.node.default_value.as_ref().map(|value| &value.node)
        };
        self.variables.get(name).or_else(default).cloned()
    }
}

fn selection_name(selection: &Selection) -> String {
    match selection {
        Selection::Field(field) => field.node.name.node.to_string(),
        Selection::FragmentSpread(spread) => format!("...{}", spread.node.fragment_name.node),
        Selection::InlineFragment(_) => "...".to_owned(),
    }
}

#[cfg(test)]
mod tests;
