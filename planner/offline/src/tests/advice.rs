//! The advice of a refusal can be followed: `add with title …` gives a value to the title.

use super::{yardstick::catalogs, *};
use crate::{
    lexicon::english,
    tool::{Slot, Tool},
};

fn sample(schema: &Value, name: &str) -> (String, String) {
    let text = |said: &str| (said.to_owned(), said.to_owned());
    if let Some(choice) = schema["enum"][0].as_str() {
        return text(choice);
    }
    let about = format!("{name} {}", schema["description"].as_str().unwrap_or_default());
    let example = about.split_once("e.g. ").map(|(_, rest)| rest.split([',', ';']).next().unwrap());
    if schema["type"] == "number" || schema["type"] == "integer" {
        text("7")
    } else if let Some(example) = example {
        text(example)
    } else if about.contains("path") || matches!(name, "source" | "destination") {
        text(&format!("/data/{name}.txt"))
    } else if schema["type"] == "array" {
        text("sam@mail.example")
    } else if name.ends_with("_id") || name.ends_with("number") {
        text("x_55")
    } else {
        (format!("\"some {name}\""), format!("some {name}"))
    }
}

#[test]
fn the_advice_of_refusals_can_be_followed() {
    let all = &catalogs()["all"];
    let mut failed = Vec::new();
    for tool in all.tools() {
        let schema = &tool.definition.input_schema;
        let read = Tool::read(&tool.definition, String::new(), english());
        if read.slots.iter().any(|slot| slot.field.is_some()) {
            continue;
        }
        let mut query = read.order.clone();
        let mut values = Vec::new();
        // An update needs something to change.
        let change = read.slots.iter().find(|slot| !slot.is_required && !slot.is_slashed);
        let is_update = read.verb == "updat";
        let needed = |slot: &&Slot| slot.is_required && !slot.is_slashed;
        for slot in read.slots.iter().filter(needed).chain(change.filter(|_| is_update)) {
            let name = slot.parameter.as_str();
            let (said, value) = sample(&schema["properties"][name], name);
            write!(query, " with {} {said}", slot.cue()).unwrap();
            values.push((name.to_owned(), value));
        }
        if read.slots.iter().any(|slot| slot.is_required && slot.is_slashed) {
            query.push_str(" in acme/site");
        }
        let planned = propose(&query, all).map(|proposal| proposal.draft.tools);
        let is_right = planned.as_ref().is_ok_and(|steps| {
            let [step] = steps.as_slice() else { return false };
            let parameters = step.parameters.as_ref().unwrap();
            step.name.as_deref() == Some(tool.definition.name.as_str())
                && values.iter().all(|(name, value)| {
                    let own = &parameters[name];
                    let own = own.get(0).unwrap_or(own);
                    own.as_str().map_or(own.to_string(), str::to_owned) == *value
                })
        });
        if !is_right {
            failed.push(format!("{query}: {}", outcome(all, &query)));
        }
    }
    assert!(failed.is_empty(), "{} failed\n{}", failed.len(), failed.join("\n"));
}
