"""Which defect of other systems, and which complaint of their users, is held against Elision by which test.

Paths are of this folder's parent. The lists are those of shared/field.md: defects of published systems in the order of
its table (P), and the 25 complaints, most painful first (C).

| item | what happens elsewhere | held here by |
|---|---|---|
| P1 | every per-turn "keep the last N" rewrites one message a request; cache reads fall to nothing | test_field.py::test_per_turn_masking_kills_the_cache, field/test_complaints.py::test_1_the_bill_does_not_go_up |
| P2 | complexity-trap SummarizeEveryNTurns: static checkpoints pile up | test_field.py::test_summaries_do_not_pile_up |
| P3 | complexity-trap LastNObservations: a shallow copy overwrites the raw observation | test_field.py::test_raw_is_not_overwritten, manager/test_histories.py::test_nothing_is_written_into_a_client_s_messages |
| P4 | SWE-agent ClosedWindow: a message with numbered lines and no file header vanishes | test_field.py::test_a_message_with_numbered_lines_does_not_vanish |
| P5 | Summit agent-context: the newest turns dropped over budget; a summary nearly every turn; turns in neither summary nor window; calls flattened to text | test_field.py::test_the_newest_turns_are_not_dropped_over_budget, test_field.py::test_a_hybrid_does_not_summarize_at_every_turn, test_field.py::test_no_turn_is_in_neither_summary_nor_window, test_field.py::test_tool_calls_stay_tool_calls |
| P6 | LangChain SummarizationMiddleware: a tool-only history becomes one canned sentence; a blank summary empties it | test_field.py::test_a_tool_only_history_keeps_the_user_s_constraints, test_field.py::test_a_blank_summary_does_not_empty_the_history |
| P7 | LangChain ClearToolUsesEdit: one more result each turn; clears the same 11 for ever | test_field.py::test_pressure_does_not_clear_one_more_each_turn, test_field.py::test_a_budget_that_is_broken_makes_progress |
| P8 | OpenHands condenser: an answer without text forgets the events | field/test_complaints.py::test_openhands_an_answer_without_text_forgets_nothing |
| P9 | Inspect AI: still over the limit after three tries, the run dies | field/test_complaints.py::test_inspect_a_run_does_not_die_of_its_compaction |
| P10 | OpenAI ToolOutputTrimmer counts user turns: nothing happens inside one long task | test_field.py::test_counts_inside_one_long_task |
| P11 | gateways: originals in memory with a TTL, markers that nothing expands, two runs of one task mixed | field/test_complaints.py::test_markers_can_be_expanded_after_a_restart, field/test_gateways.py::test_markers_expand_long_after, e2e/test_recall_through_gateway.py::test_after_a_restart_and_at_another_door, manager/test_histories.py::test_two_agents_with_the_same_words_are_two, e2e/test_sessions_live.py::test_agents_with_the_same_first_words_do_not_mix |
| P12 | gateways: provider usage falsified, responses rebuilt and broken | field/test_gateways.py::test_usage_is_the_provider_s, gateway/test_recall_rounds.py::test_without_recall_the_bytes_are_the_same, gateway/test_recall_rounds.py::test_the_providers_own_client_reads_one_answer |
| P13 | 4 characters per token: CJK off, tools and system not counted, images flat | test_field.py::test_an_estimate_is_called_one, test_field.py::test_tools_system_and_images_count, field/test_complaints.py::test_14_counts_are_the_provider_s, field/test_complaints.py::test_23_images_count_and_are_kept |
| C1 | pruning breaks the prompt cache and the bill goes up | field/test_complaints.py::test_1_the_bill_does_not_go_up |
| C2 | edited history makes signed thinking invalid | field/test_complaints.py::test_2_signed_thinking_stays_valid, field/test_complaints.py::test_2_a_budget_leaves_signed_thinking_valid, manager/test_outgoing_request.py::test_bound_thinking_is_left_to_the_server |
| C3 | orphaned calls and results kill a session | field/test_complaints.py::test_3_pairs_stay_together, manager/test_requests.py::test_nothing_is_introduced |
| C4 | goals, rules and constraints get lost | field/test_complaints.py::test_4_goals_rules_and_constraints_stay |
| C5 | compaction loops, passes that shrink nothing | field/test_complaints.py::test_5_no_pass_shrinks_nothing, test_field.py::test_a_budget_that_is_broken_makes_progress |
| C6 | the compaction call overflows, is retried unchanged and billed | field/test_complaints.py::test_6_the_compaction_call_is_not_retried_unchanged, summarizers/test_model_summarizer.py::test_overflow_is_never_sent_again_as_it_was |
| C7 | the agent reads again and redoes what was hidden | field/test_complaints.py::test_7_what_is_hidden_is_named_so_that_it_need_not_be_read_again, manager/test_observation_text.py::test_what_was_recalled_stays_while_it_is_fresh |
| C8 | savings nobody believes | field/test_complaints.py::test_8_savings_are_those_of_the_bill, test_field.py::test_savings_are_billed_savings |
| C9 | silent removal | field/test_complaints.py::test_9_nothing_is_removed_in_silence, test_field.py::test_nothing_is_removed_in_silence |
| C10 | no way back | field/test_complaints.py::test_10_there_is_a_way_back |
| C11 | lossy rewriting of tool output invents facts | field/test_complaints.py::test_11_placeholders_invent_nothing |
| C12 | an error text, a refusal or an empty string replaces history | field/test_complaints.py::test_12_a_bad_summary_replaces_nothing, manager/test_failures.py::test_summaries_that_fail |
| C13 | thresholds for the wrong model, ignored settings | field/test_complaints.py::test_13_limits_are_the_model_s_and_settings_count, manager/test_failures.py::test_a_prompt_that_was_too_long_teaches_the_window |
| C14 | wrong token counts | field/test_complaints.py::test_14_counts_are_the_provider_s |
| C15 | the agent stands still while a summary is written | manager/test_failures.py::test_in_the_background_the_agent_goes_on, manager/test_failures.py::test_a_summarizer_that_never_answers |
| C16 | a summary is read as a new order; finished tasks revived | field/test_complaints.py::test_16_a_summary_is_no_order, test_field.py::test_finished_tasks_are_not_revived |
| C17 | sub-agents share state | manager/test_histories.py::test_sub_agents_have_sessions_of_their_own |
| C18 | per-tool rules missing or bypassed on some path | field/test_complaints.py::test_18_rules_hold_on_every_route |
| C19 | proxies that break streams, unknown fields, thinking, tool search | field/test_complaints.py::test_19_what_is_unknown_passes, gateway/test_server.py::test_chunks_pass_as_they_come, gateway/test_wire.py::test_all_else_passes_as_it_came, providers/anthropic/test_stream.py::test_events_that_nobody_knows_pass, e2e/test_recall_through_gateway.py::test_with_thinking_around |
| C20 | sessions mixed, races | manager/test_histories.py::test_the_second_writer_is_told, manager/test_histories.py::test_forks_do_not_bind_each_other, test_field.py::test_sessions_do_not_share_state, gateway/test_shared_history.py::test_two_credentials_share_no_session_and_no_recall, gateway/test_in_flight.py::test_two_requests_of_a_session_say_what_each_of_them_said |
| C21 | secrets kept in summaries, stores and logs | e2e/test_secrets.py::test_summaries_hold_none, e2e/test_secrets.py::test_exports_hold_none, e2e/test_secrets.py::test_a_bug_of_ours_tells_none, field/test_gateways.py::test_keys_are_nowhere; the raw store keeps them by design |
| C22 | stores that grow without bound | field/test_complaints.py::test_22_what_repeats_is_stored_once, stores/test_contract_space.py |
| C23 | images | field/test_complaints.py::test_23_images_count_and_are_kept |
| C24 | the summarizer's own cost | field/test_complaints.py::test_24_the_summarizer_s_own_cost_is_debited |
| C25 | no off switch that is really off, no preview | field/test_complaints.py::test_25_off_is_off, field/test_gateways.py::test_off_is_really_off, field/test_gateways.py::test_a_preview_changes_nothing, cli/test_view.py, cli/test_rule_matches.py |
"""  # noqa: E501 - a table has its rows on a line each

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ITEMS = [f"P{number}" for number in range(1, 14)] + [f"C{number}" for number in range(1, 26)]


def rows() -> dict[str, str]:
    """Item -> what holds it."""
    found = [line.strip("| ").split(" | ") for line in (__doc__ or "").splitlines() if re.match(r"\| [PC]\d", line)]
    return {row[0]: row[2] for row in found}


def test_every_item_has_a_row() -> None:
    """None is left out; one without a test says why."""
    assert list(rows()) == ITEMS
    assert all(".py" in held or "none yet: " in held for held in rows().values())


@pytest.mark.parametrize("item", ITEMS)
def test_the_tests_are_there(item: str) -> None:
    """Each test that the table names exists under that name."""
    for path, name in re.findall(r"([\w/]+\.py)(?:::(\w+))?", rows()[item]):
        file = TESTS / path
        names = {
            node.name
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert name in names or (not name and names), f"{path}::{name}"


def test_every_test_of_this_folder_is_in_the_table() -> None:
    """A regression test that nobody knows of is soon lost."""
    files = ("test_complaints.py", "test_gateways.py")
    bodies = [node for file in files for node in ast.parse((TESTS / "field" / file).read_text()).body]
    names = {
        node.name
        for node in bodies
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }
    assert {name for name in names if f"::{name}" not in (__doc__ or "")} == set()
