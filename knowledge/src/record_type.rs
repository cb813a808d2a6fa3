//! The type of a record by the form of its text, in English, Chinese and Japanese (MISSION R4): how to use a tool, steps in order, work
//! that was done with its outcome, a lesson, or else a definition. What a person says of itself is typed by its cue.

use std::sync::LazyLock;

use regex::RegexSet;

use crate::record::Type;

/// The forms, the more certain first.
const FORMS: [(Type, &[&str]); 4] = [
    (
        Type::Tool,
        &[
            r"(?i)\b(run|type|call|use|execute|invoke|with) `[^`\n]{2,}`",
            r"(?i)\b(run|type|call|use|execute|invoke) (the )?(command|script|tool|endpoint|api)\b",
            r"(运行|执行|调用|输入)\S*(命令|脚本|接口|工具)|命令是",
            r"(コマンド|スクリプト|ツール|API)を(実行|使|呼)|を実行する",
        ],
    ),
    (
        Type::Plan,
        &[
            r"(?ms)^\s*1[.)] .+^\s*2[.)] ",
            r"(?i)\bfirst\b.{3,}\b(then|after that|next|finally)\b",
            r"(首先|先[^生]).{1,}(然后|接着|最后)",
            r"(まず|最初に).{2,}(次に|それから|その後|最後に)",
        ],
    ),
    (
        Type::Usecase,
        &[
            r"(?i)\b(we|i|they|she|he) \w+(ed|t|de|ent|an)\b.{3,}\b(and it|which|it) (worked|failed|fixed|solved|helped|broke|took)\b",
            r"(做了|试了|改了|换了|迁移了).{2,}(成功|失败|解决|有效|没用)",
            r"(試し|行っ|変え|移行し)(たら|て、).{0,40}(成功|失敗|解決|うまく|直)",
        ],
    ),
    (
        Type::Strategy,
        &[
            r"(?i)^\W*(always|never|avoid|prefer|it is better to|better to)\b|\b(the lesson is|lesson learned|next time)\b",
            r"(下次|以后要|永远不要|一定要|最好[别不先把用]|教训)",
            r"(次回は|必ず|絶対に|避け|教訓|したほうがいい|した方がいい)",
        ],
    ),
];

static SETS: LazyLock<Vec<(Type, RegexSet)>> = LazyLock::new(|| {
    let set = |patterns: &[&str]| RegexSet::new(patterns).unwrap_or_else(|error| unreachable!("{error}"));
    FORMS.iter().map(|(kind, patterns)| (*kind, set(patterns))).collect()
});

/// Returns the type of a record with a text.
pub(crate) fn type_of(text: &str) -> Type {
    let found = SETS.iter().find(|(_, forms)| forms.is_match(text));
    found.map_or(Type::Definition, |(kind, _)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_a_text_says_its_type() {
        for (text, kind) in [
            ("To deploy, run `make deploy` in the root.", Type::Tool),
            ("Use the script on the server for the backup.", Type::Tool),
            ("要备份就运行备份脚本。", Type::Tool),
            ("バックアップはこのスクリプトを実行する。", Type::Tool),
            ("First we test the build, then we tag the release.", Type::Plan),
            ("1. Drain the tank.\n2. Close the valve.", Type::Plan),
            ("先关阀门，然后排水。", Type::Plan),
            ("まず弁を閉め、次に水を抜く。", Type::Plan),
            ("We moved the database to the new disk and it worked.", Type::Usecase),
            ("我们换了新的磁盘，问题解决了。", Type::Usecase),
            ("Never deploy on a Friday.", Type::Strategy),
            ("下次要先备份。", Type::Strategy),
            ("金曜日の公開は避けたほうがいい。", Type::Strategy),
            ("The spare keys hang on the hook.", Type::Definition),
            ("备用钥匙挂在钩子上。", Type::Definition),
            ("我最好的朋友是小王。", Type::Definition),
            ("张先生明天再来。", Type::Definition),
            ("I run marathons in spring.", Type::Definition),
        ] {
            assert_eq!(type_of(text), kind, "{text}");
        }
    }
}
