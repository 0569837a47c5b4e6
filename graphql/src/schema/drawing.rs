use std::fmt::Write;

use planner::escape;
use shared::plan::{Plan, ToolExecution};

use super::layout::Graph;

/// Draws a plan as a Mermaid flowchart. Nodes have numbers as ids, so that no step id needs
/// escaping.
pub(super) fn draw_mermaid(plan: &Plan) -> String {
    let mut text = String::from("flowchart TD\n");
    for (index, step) in plan.steps().iter().enumerate() {
        let label = step_label(step, "<br/>", escape::escape_mermaid);
        let _ = writeln!(text, "    s{index}[\"{label}\"]");
    }
    draw_edges(plan, &mut text, |text, from, to| {
        let _ = writeln!(text, "    s{from} --> s{to}");
    });
    text
}

pub(super) fn draw_dot(plan: &Plan) -> String {
    let mut text = String::from("digraph plan {\n    rankdir=TB;\n    node [shape=box];\n");
    for (index, step) in plan.steps().iter().enumerate() {
        let label = step_label(step, "\\n", escape::escape_dot);
        let _ = writeln!(text, "    s{index} [label=\"{label}\"];");
    }
    draw_edges(plan, &mut text, |text, from, to| {
        let _ = writeln!(text, "    s{from} -> s{to};");
    });
    text.push_str("}\n");
    text
}

pub(super) fn to_graph(plan: &Plan) -> Graph {
    let steps = plan.steps().iter();
    let edges = steps.clone().enumerate();
    let edges =
        edges.flat_map(|(to, step)| step.depends_on.iter().map(move |from| (from.get(), to)));
    Graph { edges: edges.collect(), names: steps.map(|step| step.id.to_string()).collect() }
}

fn step_label(step: &ToolExecution, newline: &str, escape: impl Fn(&str) -> String) -> String {
    let (id, tool) = (step.id.as_str(), step.tool.as_str());
    if id == tool {
        return escape(id);
    }
    format!("{}{newline}{}", escape(id), escape(tool))
}

fn draw_edges(plan: &Plan, text: &mut String, draw: impl Fn(&mut String, usize, usize)) {
    for (to, step) in plan.steps().iter().enumerate() {
        for from in &step.depends_on {
            draw(text, from.get(), to);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use expect_test::expect;
    use serde_json::json;
    use shared::{
        clock::Timestamp,
        plan::{PlanInfo, StepPolicy, UncheckedPlan, UncheckedStep},
    };

    use super::*;

    fn plan() -> Plan {
        let steps = [
            ("createAuthor", "blog.createAuthor", &[][..]),
            ("flow.echo", "flow.echo", &[]),
            ("c", "odd.a\"b\\c]`<x> #1;&lt;", &["createAuthor", "flow.echo"]),
        ];
        let steps = steps.map(|(id, tool, on)| UncheckedStep {
            id: id.parse().unwrap(),
            tool: tool.parse().unwrap(),
            parameters: Arc::new(json!({})),
            depends_on: on.iter().map(|name| name.parse().unwrap()).collect(),
            output_mapping: Vec::new(),
            policy: StepPolicy::default(),
            plan: None,
            inputs: None,
            when: None,
            for_each: None,
            compensate: None,
        });
        let about = PlanInfo {
            id: "plan_1_aaaaaaaaa".parse().unwrap(),
            request: "req_1_aaaaaaaaa".parse().unwrap(),
            version: 1,
            query: "q".to_owned(),
            planner: "explicit".to_owned(),
            created_at: Timestamp::UNIX_EPOCH,
        };
        let unchecked = UncheckedPlan {
            about,
            steps: steps.into(),
            written: Vec::new(),
            diagnostics: Vec::new(),
        };
        Plan::try_from(unchecked).unwrap()
    }

    #[test]
    fn a_drawing_is_well_formed_for_any_tool_name() {
        expect![[r#"
            flowchart TD
                s0["createAuthor<br/>blog.createAuthor"]
                s1["flow.echo"]
                s2["c<br/>odd.a#34;b#92;c#93;#96;#60;x#62; #35;1#59;#38;lt#59;"]
                s0 --> s2
                s1 --> s2
        "#]]
        .assert_eq(&draw_mermaid(&plan()));
        expect![[r#"
            digraph plan {
                rankdir=TB;
                node [shape=box];
                s0 [label="createAuthor\nblog.createAuthor"];
                s1 [label="flow.echo"];
                s2 [label="c\nodd.a\"b\\c]`<x> #1;&amp;lt;"];
                s0 -> s2;
                s1 -> s2;
            }
        "#]]
        .assert_eq(&draw_dot(&plan()));
    }
}
