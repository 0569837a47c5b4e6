/** A link to the newest version of a plan, if the shown version is older. */

import { useAsk } from "../api/client";
import { PlanVersions } from "../api/generated";

export function NewerVersion({ requestId, version }: { requestId: string; version: number }) {
  const plans = useAsk(PlanVersions, { id: requestId }).data?.request?.plans ?? [];
  const newest = plans.reduce((best, plan) => (plan.version > best.version ? plan : best), { planId: "", version });
  if (newest.version === version) return null;
  return <a href={`/plans/${newest.planId}`}>version {newest.version} is newer</a>;
}
