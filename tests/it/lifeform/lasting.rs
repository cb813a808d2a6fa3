//! True claims stay: a month of talk and of nights retires none of two hundred (MISSION K3, K12).

use reqwest::StatusCode;
use serde_json::json;
use tests::honest;

use super::knowing::World;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// The first halves and the ends of fifty names that no other word resembles.
const BEGINS: [&str; 10] = ["Bra", "Cel", "Dor", "Fen", "Gal", "Hol", "Jor", "Kes", "Lun", "Mar"];
const ENDS: [&str; 5] = ["dan", "vik", "tor", "mund", "sey"];
const TOWNS: [&str; 10] = ["Lyon", "Oslo", "Faro", "Turin", "Bergen", "Cork", "Riga", "Ghent", "Graz", "Malmö"];
const JOBS: [&str; 5] = ["baker", "plumber", "nurse", "teacher", "carpenter"];
const PLAYED: [&str; 5] = ["flute", "violin", "cello", "harp", "trumpet"];
const LIKED: [&str; 5] = ["chess", "tea", "jazz", "opera", "cheese"];
const CLAIMED: [&str; 4] = ["lives_in", "works_as", "does", "likes"];

#[tokio::test]
async fn a_month_of_nights_retires_no_true_claim() {
    let mut world = World::with(honest, &["t", "his"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    // Seventy answers are more than it is given at its birth.
    let credit = json!({"amount": 50_000_000, "currency": "tokens"});
    let path = format!("{}/resources/transactions", world.life);
    world.daemon.operator.post(&path, credit).await.expect(StatusCode::CREATED);
    let names: Vec<String> = BEGINS.iter().flat_map(|begin| ENDS.map(|end| format!("{begin}{end}"))).collect();
    let about = |at: usize, name: &str| {
        let (town, job, played, liked) = (TOWNS[at % 10], JOBS[at % 5], PLAYED[at / 2 % 5], LIKED[at / 3 % 5]);
        format!("My friend {name} lives in {town}. {name} is a {job}. {name} plays the {played}. {name} likes {liked}.")
    };
    for (at, name) in names.iter().enumerate() {
        world.say(&ada, "t", &about(at, name)).await;
        world.daemon.clock.advance_ms(HOUR_MS / 8);
    }
    world.maintain("form_claims").await;
    let count = async |world: &World| {
        let mut found = Vec::new();
        for predicate in CLAIMED {
            let all = format!(
                r#"FIND(?s.attributes.name, ?o.name, ?l.metadata.status) WHERE {{ ?l (?s, "{predicate}", ?o) FILTER(?l.metadata.author == "user:ada") }} LIMIT 500"#
            );
            found.extend(world.kip(&all).await.as_array().unwrap().clone());
        }
        found
    };
    let before = count(&world).await;
    assert_eq!(before.len(), 200, "{before:?}");
    // Another person has friends of the same names, and Ada says more of hers that contradicts nothing.
    for (n, name) in names.iter().enumerate().step_by(5) {
        world.say(&ben, "his", &format!("My friend {name} lives in {}.", TOWNS[(n + 3) % 10])).await;
        world.say(&ada, "t", &format!("{name} speaks Polish and also likes gardening. I saw {name} in Rome.")).await;
        world.daemon.clock.advance_ms(HOUR_MS / 2);
    }
    for _ in 0..3 {
        world.daemon.clock.advance_ms(10 * DAY_MS);
        for task in ["form_claims", "merge_concepts", "consolidate_memory", "expire", "weigh_claims", "check_claims"] {
            world.maintain(task).await;
        }
    }
    let after = count(&world).await;
    let retired: Vec<_> = before.iter().filter(|claim| !after.contains(claim)).collect();
    assert!(retired.is_empty(), "{} of 200 were retired: {retired:?}", retired.len());
    assert!(before.iter().all(|claim| claim[2] == json!("active")));
}
