//! Drawings of a fascicle as text, in Mermaid and DOT.

use std::fmt::Write;

use crate::spec::{Edge, FascicleSpec, NodeRun, NodeSpec};

/// Returns the fascicle as a Mermaid flowchart.
pub fn mermaid(spec: &FascicleSpec) -> String {
    let mut text = format!("flowchart TD\n  accTitle: {}\n", plain(&spec.id));
    for (place, node) in spec.nodes.iter().enumerate() {
        let label = plain(&format!("{}\n{}", node.id, what(node))).replace('\n', "<br/>");
        let (open, close) = match node.run {
            NodeRun::Branch(_) => ("{\"", "\"}"),
            NodeRun::Wait(_) | NodeRun::Approve(_) => ("([\"", "\"])"),
            NodeRun::Fascicle(_) => ("[[\"", "\"]]"),
            _ => ("[\"", "\"]"),
        };
        let _ = writeln!(text, "  n{place}{open}{label}{close}");
    }
    for (place, node) in spec.nodes.iter().enumerate() {
        for edge in &node.after {
            let from = spec.nodes.iter().position(|other| other.id == edge.node).unwrap_or(place);
            let label = condition(edge).map(|label| format!("|\"{}\"|", plain(&label))).unwrap_or_default();
            let _ = writeln!(text, "  n{from} -->{label} n{place}");
        }
    }
    if let Some(output) = spec.nodes.iter().position(|node| node.id == spec.output) {
        let _ = writeln!(text, "  n{output} --> out((output))");
    }
    text
}

/// Returns the fascicle as a DOT digraph (Graphviz).
pub fn dot(spec: &FascicleSpec) -> String {
    let mut text = format!("digraph {} {{\n  node [shape=box, fontname=\"sans-serif\"];\n", quoted(&spec.id));
    for node in &spec.nodes {
        let shape = match node.run {
            NodeRun::Branch(_) => ", shape=diamond",
            NodeRun::Wait(_) | NodeRun::Approve(_) => ", style=rounded",
            NodeRun::Fascicle(_) => ", peripheries=2",
            _ => "",
        };
        let label = quoted(&format!("{}\n{}", node.id, what(node)));
        let _ = writeln!(text, "  {} [label={label}{shape}];", quoted(&node.id));
    }
    for node in &spec.nodes {
        for edge in &node.after {
            let label = condition(edge).map(|label| format!(" [label={}]", quoted(&label))).unwrap_or_default();
            let _ = writeln!(text, "  {} -> {}{label};", quoted(&edge.node), quoted(&node.id));
        }
    }
    let _ = writeln!(text, "  output [shape=doublecircle];\n  {} -> output;\n}}", quoted(&spec.output));
    text
}

fn what(node: &NodeSpec) -> String {
    fn of(run: &NodeRun) -> String {
        match run {
            NodeRun::Neuron(neuron) => match (&neuron.spec, &neuron.id) {
                (Some(spec), _) => {
                    let kind = serde_json::json!(spec.kind);
                    kind.as_str().unwrap_or_default().replace('_', " ")
                }
                (None, id) => format!("neuron {}", id.as_deref().unwrap_or_default()),
            },
            NodeRun::Fascicle(inner) => format!("fascicle {}", inner.id),
            NodeRun::Tool(tool) => format!("tool {}", tool.spec.as_ref().map_or(&*tool.name, |spec| &spec.name)),
            NodeRun::Map(map) => format!("each: {}", of(&map.run)),
            NodeRun::Join(_) => "join".into(),
            NodeRun::Branch(_) => "branch".into(),
            NodeRun::Repeat(repeat) => format!("up to {} times: {}", repeat.times, of(&repeat.run)),
            NodeRun::Wait(wait) => format!("waits for {}", wait.event),
            NodeRun::Approve(_) => "approval".into(),
        }
    }
    of(&node.run)
}

fn condition(edge: &Edge) -> Option<String> {
    match (&edge.route, &edge.when) {
        (Some(route), _) => Some(route.to_string()),
        (None, Some(when)) => Some(format!("{} {}", when.at, when.is).trim().to_owned()),
        (None, None) => None,
    }
}

/// Returns text that cannot end a label.
fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;")
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
