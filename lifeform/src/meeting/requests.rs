//! Requests in plain words to coordinate a topic, in English, Chinese and Japanese.

use std::sync::LazyLock;

use regex::Regex;

use crate::canvas::chat::{ITEM_CHARS, ITEMS_MAX};

/// A request about the stance of a lifeform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// To coordinate the topic with these items; none stands for the title.
    Coordinate(Vec<String>),
    /// To coordinate no more.
    Stop,
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap_or_else(|error| unreachable!("{error}"))
}

static COORDINATE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)^\s*(?:(?i:hey|hi|hello|ok)\W+)?(?:@[\w:]+[,:，、：]?\s*|\w+[,:，、：]\s*)?(?:(?:please|could you|can you|would you)\W+)*(?:coordinate|moderate|chair|facilitate) (?:this|our) (?:topic|talk|meeting|discussion|conversation|decision)(?:[ ,]*(?:please|now|for us))*\s*(?:[:：.!?]|\n|$)|^\s*(?:(?i:hey|hi|hello|ok)\W+)?(?:@[\w:]+[,:，、：]?\s*|\w+[,:，、：]\s*)?(?:请|麻烦)?(?:你)?(?:来)?(?:主持|协调)(?:一下)?(?:这个|这次|我们的|本次)?(?:话题|讨论|会议|会)(?:吧|吗)?\s*(?:[:：。！!？?]|\n|$)|^\s*(?:(?i:hey|hi|hello|ok)\W+)?(?:@[\w:]+[,:，、：]?\s*|\w+[,:，、：]\s*)?(?:この)?(?:話題|議論|会議|話し合い)の(?:進行|司会|進行役)を(?:して(?:ください)?|お願いします|お願い|頼みます)\s*(?:[:：。！!]|\n|$)",
    )
});
static STOP: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)^\s*(?:(?i:hey|hi|hello|ok)\W+)?(?:@[\w:]+[,:，、：]?\s*|\w+[,:，、：]\s*)?(?:please\W+)?stop (?:coordinating|moderating|chairing|facilitating|leading)\b|^\s*(?:(?i:hey|hi|hello|ok)\W+)?(?:@[\w:]+[,:，、：]?\s*|\w+[,:，、：]\s*)?不用(?:再)?(?:主持|协调)了|^\s*(?:(?i:hey|hi|hello|ok)\W+)?(?:@[\w:]+[,:，、：]?\s*|\w+[,:，、：]\s*)?(?:進行役|司会)は(?:もう)?(?:終わり|いい|結構)",
    )
});
/// The beginning of an item: a number or a bullet.
static ITEM: LazyLock<Regex> = LazyLock::new(|| regex(r"^\s*(?:\d{1,2}[.):、：）]|[-*•・])\s*"));

/// Returns the request of a message. The items are its numbered or bulleted lines, or what stands after a colon.
pub(crate) fn request(message: &str) -> Option<Request> {
    let message = message.trim();
    if STOP.is_match(message) {
        return Some(Request::Stop);
    }
    let found = COORDINATE.find(message)?;
    // The sign at its end belongs to the items.
    let end = found.as_str().trim_end().trim_end_matches([':', '：']).len();
    let rest = &message[found.start() + end..];
    let lines = rest.lines().filter_map(|line| ITEM.find(line).map(|mark| line[mark.end()..].trim()));
    let mut items: Vec<String> = lines.filter(|item| !item.is_empty()).map(str::to_owned).collect();
    let has_marks = rest.lines().any(|line| ITEM.is_match(line));
    let plain: Vec<&str> =
        rest.trim_start_matches([':', '：', ' ']).lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if items.is_empty() && !has_marks && plain.len() > 1 {
        items.extend(plain.into_iter().map(str::to_owned));
    } else if items.is_empty() && !has_marks {
        let after = rest.split_once([':', '：']).map(|(_, after)| after.trim()).filter(|after| !after.is_empty());
        items.extend(after.map(|after| after.split_whitespace().collect::<Vec<_>>().join(" ")));
    }
    let fits = items.len() <= ITEMS_MAX && items.iter().all(|item| item.chars().count() <= ITEM_CHARS);
    fits.then_some(Request::Coordinate(items))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_coordinated_by_request() {
        let items = |items: &[&str]| Some(Request::Coordinate(items.iter().map(|item| (*item).to_owned()).collect()));
        for (message, found) in [
            (
                "Iris, please coordinate this topic:\n1. Which day?\n2. The boat: Heron, Petrel",
                items(&["Which day?", "The boat: Heron, Petrel"]),
            ),
            ("@Iris could you chair our meeting: shall we sail on Saturday?", items(&["shall we sail on Saturday?"])),
            (
                "Iris, please coordinate this topic:\nShall we meet?\nThe place: my house, the pub",
                items(&["Shall we meet?", "The place: my house, the pub"]),
            ),
            ("@Iris please coordinate this topic:\n1. \n2. ", items(&[])),
            ("Hey Iris, please coordinate this topic", items(&[])),
            ("Moderate this discussion", items(&[])),
            ("Can you lead the conversation? I am shy today.", None),
            ("Moderate discussion about my essay, like a strict professor.", None),
            ("Moderate this discussion about my essay", None),
            ("请主持这个讨论：\n- 周六还是周日？", items(&["周六还是周日？"])),
            ("この話題の進行をお願いします：\n・土曜日にしますか", items(&["土曜日にしますか"])),
            ("Iris, stop coordinating, thanks", Some(Request::Stop)),
            ("不用主持了", Some(Request::Stop)),
            ("Who chairs this meeting?", None),
            ("Ada will coordinate the discussion", None),
            ("I lead the talk tomorrow", None),
            ("Could you tell me who moderates?", None),
        ] {
            assert_eq!(request(message), found, "{message}");
        }
    }
}
