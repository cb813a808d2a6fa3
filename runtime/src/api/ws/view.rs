//! The view of one subscriber on a canvas: all of it, or the parts at and below some pointers. Each subscriber receives
//! each revision number, and thus knows that it missed none.

use std::sync::Arc;

use bytes::Bytes;
use lifeform::canvas::{Frame, State};
use serde_json::{Map, Value, json};

/// The pointers that a subscriber sees.
#[derive(Clone)]
pub(super) struct View {
    paths: Vec<String>,
}

/// The maximum size of one batch of deltas, in bytes.
const BATCH_BYTES: usize = 256 << 10;
/// The maximum number of pointers in a view.
pub(super) const PATHS_MAX: usize = 64;

/// Returns `true` if `path` is at or below `of`.
fn is_within(path: &str, of: &str) -> bool {
    path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl View {
    pub(super) fn new(paths: Vec<String>) -> Self {
        Self { paths: paths.into_iter().map(|path| path.trim_end_matches('/').to_owned()).collect() }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.paths.is_empty()
    }

    /// Returns `true` if a change at `path` is visible: the path is within the view, or a parent of it.
    pub(super) fn sees(&self, path: &str) -> bool {
        self.is_whole() || self.paths.iter().any(|seen| is_within(path, seen) || is_within(seen, path))
    }

    /// Returns the state that this subscriber folds.
    pub(super) fn state(&self, state: &State) -> Value {
        let whole = state.to_json();
        if self.is_whole() { whole } else { self.within(whole, "") }
    }

    fn within(&self, value: Value, at: &str) -> Value {
        if self.paths.iter().any(|seen| is_within(at, seen)) {
            return value;
        }
        let Value::Object(members) = value else { return value };
        let kept = members.into_iter().filter_map(|(name, member)| {
            let path = format!("{at}/{}", lifeform::canvas::escape(&name));
            // Parents of visible parts are kept only as their path.
            self.sees(&path).then(|| (name, self.within(member, &path)))
        });
        Value::Object(kept.collect::<Map<_, _>>())
    }

    /// Returns the frames for this subscriber: several combined into one, and invisible changes reduced to their
    /// revision.
    pub(super) fn frames(&self, frames: &[Frame]) -> Arc<[Bytes]> {
        let mut seen = Vec::new();
        let (mut skipped, mut batch) = (0, Vec::new());
        for frame in frames {
            if !frame.paths.iter().any(|path| self.sees(path)) && !self.is_whole() {
                flush(&mut batch, &mut seen);
                skipped = frame.rev;
                continue;
            }
            if skipped > 0 {
                seen.push(json!({"t": "skip", "to": skipped}).to_string().into());
                skipped = 0;
            }
            batch.push((frame.rev, self.part_of(frame)));
            if batch.iter().map(|(_, text)| text.len()).sum::<usize>() >= BATCH_BYTES {
                flush(&mut batch, &mut seen);
            }
        }
        flush(&mut batch, &mut seen);
        if skipped > 0 {
            seen.push(json!({"t": "skip", "to": skipped}).to_string().into());
        }
        seen.into()
    }

    /// Returns a frame with the visible part of its patch.
    fn part_of(&self, frame: &Frame) -> Arc<str> {
        let is_seen_whole = |path: &String| self.paths.iter().any(|seen| is_within(path, seen));
        if self.is_whole() || frame.paths.iter().all(is_seen_whole) {
            return frame.text.clone();
        }
        let mut delta: Value = serde_json::from_str(&frame.text).unwrap_or_default();
        if let Some(patch) = delta["patch"].as_array_mut() {
            patch.retain(|op| op["path"].as_str().is_some_and(|path| self.sees(path)));
            for op in patch {
                let path = op["path"].as_str().unwrap_or_default().to_owned();
                // A value above the view is filtered like a snapshot.
                if let Some(value) = op.get_mut("value") {
                    *value = self.within(value.take(), &path);
                }
            }
        }
        delta.to_string().into()
    }
}

/// Combines several frames into one.
fn flush(batch: &mut Vec<(u64, Arc<str>)>, into: &mut Vec<Bytes>) {
    match batch.as_slice() {
        [] => {}
        [(_, one)] => into.push(Bytes::copy_from_slice(one.as_bytes())),
        [(from, _), .., (to, _)] => {
            let deltas = batch.iter().map(|(_, text)| &**text).collect::<Vec<_>>().join(",");
            into.push(format!(r#"{{"t":"batch","from":{from},"to":{to},"deltas":[{deltas}]}}"#).into());
        }
    }
    batch.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(rev: u64, paths: &[&str]) -> Frame {
        let patch: Vec<Value> = paths.iter().map(|path| json!({"op": "remove", "path": path})).collect();
        let text = json!({"t": "delta", "rev": rev, "patch": patch}).to_string().into();
        Frame { rev, text, paths: paths.iter().map(|path| (*path).to_owned()).collect() }
    }

    fn shown(view: &View, frames: &[Frame]) -> Vec<Value> {
        view.frames(frames).iter().map(|text| serde_json::from_slice(text).unwrap()).collect()
    }

    #[test]
    fn who_sees_a_part_is_told_of_every_revision() {
        let frames = [
            frame(1, &["/users/a", "/topics/t"]),
            frame(2, &["/topics/u"]),
            frame(3, &["/topics/u/messages/m"]),
            frame(4, &["/topics/t/messages/m"]),
            frame(5, &["/topics/tt"]),
        ];
        let all = shown(&View::new(Vec::new()), &frames);
        assert_eq!(
            (all.len(), &all[0]["from"], &all[0]["to"], all[0]["deltas"].as_array().unwrap().len()),
            (1, &json!(1), &json!(5), 5)
        );
        let part = shown(&View::new(vec!["/topics/t".into()]), &frames);
        let kinds: Vec<&str> = part.iter().map(|frame| frame["t"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["delta", "skip", "delta", "skip"]);
        assert_eq!(part[0]["patch"], json!([{"op": "remove", "path": "/topics/t"}]));
        assert_eq!((&part[1]["to"], &part[3]["to"]), (&json!(3), &json!(5)));
    }

    #[test]
    fn of_what_is_put_above_a_view_only_what_leads_to_it_is_shown() {
        let message = json!({"id": "m", "content": "not for this view", "reactions": {"+1": {}}});
        let patch = json!([{"op": "add", "path": "/topics/t/messages/m", "value": message}]);
        let text = json!({"t": "delta", "rev": 1, "patch": patch}).to_string().into();
        let frame = Frame { rev: 1, text, paths: ["/topics/t/messages/m".to_owned()].into() };
        let seen = shown(&View::new(vec!["/topics/t/messages/m/reactions".into()]), &[frame]);
        assert_eq!(seen[0]["patch"][0]["value"], json!({"reactions": {"+1": {}}}));
    }
}
