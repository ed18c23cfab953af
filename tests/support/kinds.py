"""A manifest of each kind of the platform."""

from __future__ import annotations

from reconciler.model.key import Kind

KINDS = {
    Kind.ORG: "kind: org\nname: acme\nspec: {sessionTimeoutSeconds: 3600}\n",
    Kind.AGENT: "kind: agent\nname: office\n",
    Kind.AUDITCTX: "kind: auditctx\nname: payments\n",
    Kind.CLOUDACCOUNT: "kind: cloudaccount\nname: aws\nprovider: aws\n"
    "data: {roleArn: 'arn:aws:iam::123456789012:role/platform'}\n",
    Kind.DOMAIN: "kind: domain\nname: shop.example.com\nspec: {gvcLink: //gvc/shop}\n",
    Kind.GROUP: "kind: group\nname: ops\nmemberLinks: [//user/ada@example.com, //serviceaccount/ci]\n",
    Kind.IDENTITY: "kind: identity\nname: web\naws: {cloudAccountLink: //cloudaccount/aws, roleName: reader}\n"
    "networkResources: [{name: db, agentLink: //agent/office, FQDN: db.internal, ports: [5432]}]\n",
    Kind.IMAGE: "kind: image\nname: web:v3\ndescription: The page\n",
    Kind.IPSET: "kind: ipset\nname: edge\nspec: {link: //gvc/shop, locations: [{name: here, retentionPolicy: keep}]}\n",
    Kind.LOCATION: "kind: location\nname: here\nprovider: byok\n",
    Kind.MK8S: "kind: mk8s\nname: cluster\nspec: {version: 1.28.4, provider: {generic: {location: here}}}\n",
    Kind.POLICY: "kind: policy\nname: ops-edit\ntargetKind: gvc\ntarget: all\n"
    "bindings: [{permissions: [edit], principalLinks: [//group/ops]}]\n",
    Kind.QUOTA: "kind: quota\nname: workloads\nmax: 100\n",
    Kind.SECRET: "kind: secret\nname: logs\ntype: opaque\ndata: {payload: not-real}\n",
    Kind.SERVICEACCOUNT: "kind: serviceaccount\nname: ci\n",
    Kind.USER: "kind: user\nname: ada@example.com\n",
    Kind.VOLUMESET: "kind: volumeset\nname: data\nspec: {initialCapacity: 10, performanceClass: general-purpose-ssd}\n",
    Kind.WORKLOAD: "kind: workload\nname: web\nspec:\n  type: standard\n  identityLink: //identity/web\n"
    "  containers: [{name: main, image: //image/web:v3}]\n",
}
"""One manifest of each kind but the GVC, which ``shop/gvc.yaml`` holds."""
